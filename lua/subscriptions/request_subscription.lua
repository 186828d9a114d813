#!lua
-- Store a subscription that waits for an owner's approval, with its options. One bare JID may have `most_each`; beyond that its own
-- oldest request is removed, so that a client that returns with ever new resources cannot fill the list. Returns how many requests the
-- JID had, and which was removed.
-- ARGV: now incarnation jid request most most_each
-- RETURNS: ok(count oldest) gone pending-subscription too-many
if redis.call('HGET', key.node, 'incarnation') ~= arg.incarnation then return {'gone'} end
if redis.call('HEXISTS', key.pending, arg.jid) == 1 then return {'pending-subscription'} end
local lines, own, oldest, age = redis.call('HGETALL', key.pending), 0, '', math.huge
for i = 1, #lines, 2 do
  -- What another version wrote may have no time: it is the oldest.
  local since = tonumber(string.match(lines[i + 1], '^%d+') or 0)
  if jids.bare(lines[i]) == jids.bare(arg.jid) then
    own = own + 1
    if since < age then oldest, age = lines[i], since end
  end
end
local full = own >= tonumber(arg.most_each)
if not full and #lines / 2 >= tonumber(arg.most) then return {'too-many'} end
if full then redis.call('HDEL', key.pending, oldest) end
redis.call('HSET', key.pending, arg.jid, string.format('%.0f 0 %s', clock.now(), arg.request))
return {'ok', own, full and oldest or ''}
