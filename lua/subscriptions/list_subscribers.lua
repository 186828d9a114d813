#!lua flags=no-writes
-- List subscribers in bounded parts: the credit and the locks of each here, and the scope of those of a collection.
-- ARGV: now revision scan
-- RETURNS: ok(scan jids scopes subids credits holdings) stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
local scopes, subids, credits, holdings = {}, {}, {}, {}
for i = 1, #found[2], 2 do
  local subscriber = subscriptions.read(found[2][i], found[2][i + 1])
  jids[#jids + 1], scopes[#scopes + 1] = subscriber.jid, redis.call('HGET', key.scopes, subscriber.subid) or ''
  subids[#subids + 1] = subscriber.subid
  credits[#credits + 1] = subscriber.limit
  holdings[#holdings + 1] = redis.call('ZCOUNT', key.locks_by_subscriber, subscriber.subid, subscriber.subid)
end
return respond.results({found[1], jids, scopes, subids, credits, holdings})
