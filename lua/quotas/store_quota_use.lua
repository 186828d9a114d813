#!lua
-- Store what a subject was measured to use, items and bytes, with how much had been let through when the measurement began. It is measured
-- again after `pause_ms` at the earliest.
-- ARGV: now subject count bytes added_count added_bytes pause_ms idle_seconds
-- RETURNS: ok
local use, now = quota_use.read(arg.subject), clock.now()
-- Less is known to be let through if Redis has lost its last second.
use.count = arg.count - math.min(arg.added_count, use.added_count)
use.bytes = arg.bytes - math.min(arg.added_bytes, use.added_bytes)
use.measured, use.due = now, now + arg.pause_ms
quota_use.write(arg.subject, use)
return {'ok'}
