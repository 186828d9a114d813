#!lua flags=allow-oom
-- Tell a frontend to end, and return whether it was listed. It counts as dead at once: the others take over its deliveries with their
-- next heartbeats, and it learns of it with its own next one. Entries older than `keep_ms` are removed, and the oldest ones beyond
-- `most`.
-- ARGV: now frontend by keep_ms most
-- RETURNS: ok(count)
local now = clock.now()
local told, oldest, left = redis.call('HGETALL', key.disconnected), nil, 0
for i = 1, #told, 2 do
  local at = tonumber(string.match(told[i + 1], '^%d+'))
  if at <= now - tonumber(arg.keep_ms) then
    redis.call('HDEL', key.disconnected, told[i])
  else
    left = left + 1
    if not oldest or at < oldest.at then oldest = {name = told[i], at = at} end
  end
end
if left >= tonumber(arg.most) then redis.call('HDEL', key.disconnected, oldest.name) end
redis.call('HSET', key.disconnected, arg.frontend, string.format('%.0f %s', now, arg.by))
local listed = redis.call('ZSCORE', key.frontends, arg.frontend) and 1 or 0
redis.call('ZADD', key.frontends, 'XX', 0, arg.frontend)
return {'ok', listed}
