"""How updates of unlike sub-models become one."""
