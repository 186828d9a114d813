#!lua flags=allow-oom
-- Hand items out with credit that a coordinator has granted, each grant once. The credit report returns the unused rest. A subscriber
-- that gets no shared credit here, because it is unknown or owns the partition, is reported to the coordinator of the `pool` (empty: of
-- the node).
-- ARGV: now revision frontend sent number retry | subid grant amount pool
-- RETURNS: ok stale gone deleted | ok superseded not-subscribed
local refusal = partition.load()
if refusal then return refusal end
local results, amount = {}, 0

local function take(row)
  local subscriber = subscriptions.get(row.subid)
  if not subscriber or partition_owner.is(row.subid) or subscriptions.reads(subscriber) or (subscriber.pool or '') ~= row.pool then
    credit_report.refuse(row.subid, row.pool, row.grant)
    return {'not-subscribed'}
  end
  lock_end.touch(row.subid)
  if not grants.take(row.subid, row.grant) then return {'superseded'} end
  -- While a partition is owned, nobody else gets items (E28).
  if not partition_owner.get() and call.caller_sends then
    subscriber.limit, subscriber.held, subscriber.granted = tonumber(row.amount), 0, true
    call.dispatch_granted[#call.dispatch_granted + 1] = subscriber
    amount = amount + subscriber.limit
  else
    call.credit_report_unused[row.subid] = tonumber(row.amount)
  end
  return {'ok'}
end

for i, row in ipairs(rows) do results[i] = take(row) end
return respond.make(results, amount)
