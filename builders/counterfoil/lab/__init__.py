"""The embedded world ("wardrobe"), its input dataset and its small models: provable without network
or GPU."""
