"""The one way to start git outside sandboxes, and the host's repository read as data.

Law 12: what an agent, a tree or a stranger wrote never configures a git that has the person's
rights. Start with `run_git`, then `host_repository` and `repository_view`.
"""
