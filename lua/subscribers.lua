#!lua flags=no-writes
-- List who is subscribed, in bounded parts.
-- KEYS: meta subscribers
-- ARGV: now revision scan
-- RETURNS: ok stale gone deleted
-- WRITES:
--- @include partition subscriptions
local refusal = partition.load()
if refusal then return refusal end
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
for i = 1, #found[2], 2 do jids[#jids + 1] = subscriptions.read(found[2][i], found[2][i + 1]).jid end
return {'ok', {found[1], jids}, {}, {}, {}, 0, 0, partition.token}
