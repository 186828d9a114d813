#!lua flags=allow-oom
-- Have a frontend end, and tell whether it stood in the list. It is heard no longer, so the others take over what it owes with
-- their next heartbeats; itself learns of it with its own next one, whenever that is. Of those told so before, the ones longer
-- ago than `keep_ms` are forgotten, and the longest ago of `most`.
-- ARGV: now frontend by keep_ms most
-- RETURNS: ok
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
