"""Whether a connection is allowed: sessions, questions to the supervisor, checked addresses.

No byte reaches an origin before `admission` got an explicit allow. Start with `admission`.
"""
