"""ResNets for CIFAR-10 (He 2016, section 4.2), read from the files of two authors, who name their
parts differently."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn
from torchvision.transforms import v2

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
MEAN = (0.485, 0.456, 0.406)
DEVIATION = (0.229, 0.224, 0.225)
# Names in one author's files that stand for those of the other.
_OTHER_NAMES = {"conv_": "conv", "bn_": "bn", "stage_": "layer", "fc.": "linear."}


class ResidualBlock(nn.Module):
    """Two convolutions of 3 × 3 with a shortcut: a convolution where the file has one, else padding
    by zeros."""

    def __init__(self, inputs: int, outputs: int, stride: int, projects: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.padding = (outputs - inputs) // 2
        self.stride = stride
        self.downsample: nn.Module | None = None
        if projects:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        if self.downsample is not None:
            x = self.downsample(x)
        elif self.stride != 1 or self.padding:
            x = nn.functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, self.padding, self.padding)
            )
        return torch.relu(x + y)


class CifarResNet(nn.Module):
    """A ResNet for pictures of 32 × 32 pixels, with three stages of `blocks` blocks each."""

    label_names = CLASSES

    def __init__(self, blocks: int, projects: bool) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(16)
        stages = []
        for inputs, outputs, stride in ((16, 16, 1), (16, 32, 2), (32, 64, 2)):
            changes = stride != 1 or inputs != outputs
            first = ResidualBlock(inputs, outputs, stride, projects and changes)
            rest = [ResidualBlock(outputs, outputs, 1, projects=False) for _ in range(blocks - 1)]
            stages.append(nn.Sequential(first, *rest))
        self.layer1, self.layer2, self.layer3 = stages
        self.linear = nn.Linear(64, len(CLASSES))

    def read_by_head(self, x: torch.Tensor) -> torch.Tensor:
        """Return what the last layer reads: [images, 64]."""
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(x))).mean((2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.read_by_head(x))


def load_network(file: Path) -> CifarResNet:
    """Return the network of a file, in eval mode. Raises RuntimeError where a tensor is missing or
    left over."""
    tensors = {}
    for name, tensor in load_file(file).items():
        for other, usual in _OTHER_NAMES.items():
            name = name.replace(other, usual)
        tensors[name] = tensor
    blocks = sum(name.startswith("layer1.") and name.endswith(".conv1.weight") for name in tensors)
    network = CifarResNet(blocks, projects=any(".downsample." in name for name in tensors))
    # Counters of batches say nothing of a picture, and not every file has them.
    counters = {
        name: tensor
        for name, tensor in network.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    network.load_state_dict(counters | tensors)
    return network.eval()


def transform() -> v2.Transform:
    """Return what the networks were trained with: PIL image → float32 [3, 32, 32], normalised."""
    return v2.Compose(
        [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, DEVIATION)]
    )
