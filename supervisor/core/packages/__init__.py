"""Package managers: read their commands, and plan what an install would bring.

Pure: answers of managers and registries come as data. Nothing is run or fetched here; rules are in
`core.policy`. Start with `package_commands`, then `install_plan`.
"""
