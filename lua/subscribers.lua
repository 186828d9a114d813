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
local scopes = {}
for i = 1, #found[2], 2 do
  local subscriber = subscriptions.read(found[2][i], found[2][i + 1])
  jids[#jids + 1], scopes[#scopes + 1] = subscriber.jid, shares.read(subscriber).scope
end
return {'ok', {found[1], jids, scopes}, {}, {}, {}, 0, 0, partition.token}
