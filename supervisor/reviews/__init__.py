"""The review service: webhooks become slots, slots become runs, runs become acts.

    intake -> reconcile -> slots (drainer) -> queue -> runs (clones, a session) -> poster

Start with `service`, which holds the parts together.
"""
