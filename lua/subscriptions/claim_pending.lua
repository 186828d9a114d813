#!lua flags=allow-oom
-- Take up a subscription that waited for approval and has it: only one at a time makes it. Should that one die, another may
-- take it up `late_ms` after. Answers a stamp that `remove_pending` is to be told.
-- ARGV: now jid late_ms
-- RETURNS: ok gone waiting
local now, line = clock.now(), redis.call('HGET', key.pending, arg.jid)
if not line then return {'gone'} end
local since, taken, request = string.match(line, '^(%d+) (%d+) (.*)$')
if now - tonumber(taken) < tonumber(arg.late_ms) then return {'waiting'} end
redis.call('HSET', key.pending, arg.jid, string.format('%s %.0f %s', since, now, request))
return {'ok', string.format('%.0f', now), request}
