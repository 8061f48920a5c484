"""Package managers: what their commands say, and what an install would bring.

Pure: answers of managers and registries come as data. Nothing is run or fetched here, and rules are
in `core.policy`. Start with `package_commands`, then `install_plan`.
"""
