"""SmolLM2-135M-Instruct with LoRA members on reasoning-gym tasks, on CPU."""
