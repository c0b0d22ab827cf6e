"""A tenant: a training loop in a process of its own that knows nothing but the control plane."""
