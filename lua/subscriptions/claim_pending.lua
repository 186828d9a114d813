#!lua flags=allow-oom
-- Take up an approved subscription, so that only one frontend makes it. If that one dies, another may take it up `late_ms`
-- later. Answers a stamp for `remove_pending`.
-- ARGV: now jid late_ms
-- RETURNS: ok gone waiting
local now, line = clock.now(), redis.call('HGET', key.pending, arg.jid)
if not line then return {'gone'} end
local since, taken, request = string.match(line, '^(%d+) (%d+) (.*)$')
if now - tonumber(taken) < tonumber(arg.late_ms) then return {'waiting'} end
redis.call('HSET', key.pending, arg.jid, string.format('%s %.0f %s', since, now, request))
return {'ok', string.format('%.0f', now), request}
