#!lua flags=allow-oom
-- Close a partition for good and tell in bounded parts who was subscribed; with the last part everything is freed, but for a
-- mark that keeps late frontends from opening it again.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover tried answers answers_old sent seen journal unconfirmed retries readers reading outstanding heads keyed blocked owners leases leaving leaves selectors conditions behind passed bonds ranked ends grants usage ledger unsettled demand wanted
-- ARGV: scan grave_seconds
-- RETURNS: ok
redis.call('HSET', key.meta, 'state', 'deleted')
local found, jids = redis.call('HSCAN', key.subscribers, arg.scan, 'COUNT', 200), {}
for i = 1, #found[2], 2 do jids[#jids + 1] = subscriptions.read(found[2][i], found[2][i + 1]).jid end
if found[1] == '0' then
  for _, name in pairs(key) do redis.call('UNLINK', name) end
  redis.call('HSET', key.meta, 'state', 'deleted')
  redis.call('EXPIRE', key.meta, arg.grave_seconds)
end
return {'ok', found[1], jids}
