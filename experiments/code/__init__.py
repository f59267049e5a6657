"""SmolLM2-135M-Instruct with LoRA members on Python functions, rewarded by a rule over what a sandbox saw, on CPU."""
