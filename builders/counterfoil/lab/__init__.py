"""The embedded world ("wardrobe"), its input dataset and its small models: everything provable without network or GPU."""
