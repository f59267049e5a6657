"""Generation engines behind `records.protocols.Generator`: transformers models with our own decoding loop, and a scripted one."""
