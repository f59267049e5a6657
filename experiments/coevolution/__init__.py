"""The study behind the project's claim: co-evolution against the control schedules, at equal episodes, tokens and CPU seconds."""
