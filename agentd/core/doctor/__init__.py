"""What a host must have to train, as rules over facts: `heteroflow-agentd doctor`."""
