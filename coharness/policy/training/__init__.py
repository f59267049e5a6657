"""Training: updates of members' weights, with their optimizer state kept in memory between updates or restored from disk.

`torch_trainer` runs jobs, `member_state` holds members and swaps them into one model, `lora` says what an adapter is, `forward`
turns rows into log-probabilities. Importing these modules loads torch.
"""
