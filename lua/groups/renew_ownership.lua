#!lua flags=allow-oom
-- Renew the lease of an owner that says it is alive (EX16).
-- ARGV: now revision | subids
-- RETURNS: ok stale gone deleted | ok(group epoch fence until_ms credit) not-subscribed
local refusal = partition.load()
if refusal then return refusal end
local results = {}
for i, row in ipairs(rows) do
  local who, a, b = partition_owner.get(), jids.subids(row.subids)
  local subscriber = who and (who.subid == a or who.subid == b) and subscriptions.get(who.subid)
  if subscriber then
    partition_owner.renew(who)
    results[i] = {'ok', who.group, group_epochs.get(who.group), call.partition_fence, who.lease, subscriber.limit}
  else
    results[i] = {'not-subscribed'}
  end
end
return respond.results(results, next_due.time())
