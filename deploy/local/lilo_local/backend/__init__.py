"""The process that owns the model: a frozen transformer, the adapters of all tenants, their
optimizers, behind HTTP. Only this process imports torch."""
