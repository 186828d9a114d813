#!lua flags=allow-oom
-- Claim an approved subscription, so that only one frontend creates it. If that frontend dies, another may claim it `late_ms` later.
-- Returns a stamp for `remove_pending`.
-- ARGV: now jid late_ms
-- RETURNS: ok(stamp request) gone waiting
local now, line = clock.now(), redis.call('HGET', key.pending, arg.jid)
if not line then return {'gone'} end
local since, taken, request = string.match(line, '^(%d+) (%d+) (.*)$')
if now - tonumber(taken) < tonumber(arg.late_ms) then return {'waiting'} end
redis.call('HSET', key.pending, arg.jid, string.format('%s %.0f %s', since, now, request))
return {'ok', string.format('%.0f', now), request}
