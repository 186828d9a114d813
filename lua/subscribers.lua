#!lua flags=no-writes
-- List who is subscribed, in bounded parts, and to what of a collection.
-- KEYS: meta subscribers shares
-- ARGV: now revision number scan
-- RETURNS: ok stale gone deleted
-- WRITES:
--- @include partition subscriptions shares
local refusal = partition.load()
if refusal then return refusal end
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
local scopes, subids = {}, {}
for i = 1, #found[2], 2 do
  local subscriber = subscriptions.read(found[2][i], found[2][i + 1])
  jids[#jids + 1], scopes[#scopes + 1] = subscriber.jid, shares.read(subscriber).scope
  -- What goes by the name of a pool is a subscription to another node.
  subids[#subids + 1] = subscriber.pool and '' or subscriber.subid
end
return {'ok', {found[1], jids, scopes, subids}, {}, {}, {}, 0, 0, partition.token}
