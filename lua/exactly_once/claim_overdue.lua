#!lua flags=allow-oom
-- Claim deliveries that were begun and not ended in time, because their frontend may be dead. Drop prepared messages that nobody
-- delivers.
-- ARGV: now window_ms late_ms most
-- RETURNS: ok(messages(name record))
local now = clock.now()
prepared_messages.tidy(now)
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', key.deliveries_begun, '-inf', now - tonumber(arg.late_ms), 'LIMIT', 0, arg.most)) do
  -- Claimed anew, so that one frontend at a time works on it.
  redis.call('ZADD', key.deliveries_begun, now, name)
  found[#found + 1] = {name, redis.call('HGET', key.prepared, name)}
end
return {'ok', found}
