#!lua flags=no-writes
-- List who is subscribed, in bounded parts, what each may hold here and holds, and what of a collection it is for.
-- ARGV: now revision scan
-- RETURNS: ok stale gone deleted
local refusal = partition.load()
if refusal then return refusal end
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
local scopes, subids, credits, holdings = {}, {}, {}, {}
for i = 1, #found[2], 2 do
  local subscriber = subscriptions.read(found[2][i], found[2][i + 1])
  jids[#jids + 1], scopes[#scopes + 1] = subscriber.jid, usage.read(subscriber.subid).scope
  -- What goes by the name of a pool is a subscription to another node.
  subids[#subids + 1] = subscriber.pool and '' or subscriber.subid
  credits[#credits + 1] = subscriber.limit
  holdings[#holdings + 1] = redis.call('ZCOUNT', key.locks_by_subscriber, subscriber.subid, subscriber.subid)
end
return {'ok', {found[1], jids, scopes, subids, credits, holdings}, {}, {}, {}, 0, 0, call.partition_token}
