"""The named jobs of jobs.yaml, as the Sessions page lists them."""

from datetime import datetime
from typing import Any

from supervisor.core.text.duration import format_duration
from supervisor.errors import GatehouseError
from supervisor.server.common.parts import Parts
from supervisor.server.common.views import shown
from supervisor.sessions.scheduled_jobs import read_jobs


def rows(parts: Parts) -> dict[str, Any]:
    """Return the jobs, and why others, or their file, can't be used; nothing where there are
    none."""
    now = parts.clock.now()
    try:
        jobs, faults = read_jobs(parts.settings.jobs_file)
    except GatehouseError as error:
        return {"error": shown(str(error), parts.redactor), "rows": []}
    found = []
    for name, job in jobs.items():
        last = parts.sessions.last_of_job(name)
        due = datetime.fromtimestamp(job.next_after(now)).astimezone()
        found.append(
            {
                "name": shown(name, parts.redactor),
                "cron": job.cron,
                "workspace": shown(str(job.workspace), parts.redactor),
                "next": due.strftime("%a %d %b %H:%M"),
                "last_id": last.id if last else "",
                "last_ago": format_duration(now - last.created_at) if last else "",
            }
        )
    wrong = shown("; ".join(faults.values()), parts.redactor)
    return {"error": wrong, "rows": found} if found or wrong else {}
