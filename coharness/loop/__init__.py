"""The loop: a pure core (state is the fold of events; `ask` says what to do next), and the engine that carries it out."""
