#!lua flags=allow-oom
-- Keep where one bare JID has an affiliation: note a node, for which the longest noted give way, or forget one that was noted
-- no later than `before` (ms), for a later note may be of an affiliation that is just coming.
-- KEYS: affiliated
-- ARGV: now kind node before most
-- RETURNS: ok
-- WRITES: affiliated
--- @include clock
if arg.kind == 'noted' then
  redis.call('ZADD', key.affiliated, string.format('%.0f', clock.now()), arg.node)
  redis.call('ZREMRANGEBYRANK', key.affiliated, 0, -1 - tonumber(arg.most))
else
  local noted = redis.call('ZSCORE', key.affiliated, arg.node)
  if noted and tonumber(noted) <= tonumber(arg.before) then redis.call('ZREM', key.affiliated, arg.node) end
end
return {'ok'}
