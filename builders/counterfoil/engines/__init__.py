"""Where shards and groups of classes are made: engines, which hand out work and tell of it as it is done."""
