#!lua flags=allow-oom
-- Keep which nodes a bare JID has created, within its quota.
-- KEYS: owned
-- ARGV: kind node most
-- RETURNS: ok too-many
-- WRITES: owned
if arg.kind == 'lost' then
  redis.call('SREM', key.owned, arg.node)
  return {'ok', {}}
end
if redis.call('SISMEMBER', key.owned, arg.node) == 0 and redis.call('SCARD', key.owned) >= tonumber(arg.most) then
  return {'too-many', redis.call('SRANDMEMBER', key.owned, 10)}
end
redis.call('SADD', key.owned, arg.node)
return {'ok', {}}
