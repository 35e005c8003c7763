"""How much to optimize a program: one that runs once should not take longer to compile than to run."""

# For programs that run in a moment whatever their code: a sixth of the time of a full compilation.
UNOPTIMIZED = {"xla_backend_optimization_level": 0}

# For programs with some work, such as drawing many normal variables: half of that time, and as fast.
LIGHTLY_OPTIMIZED = {"xla_backend_optimization_level": 1}
