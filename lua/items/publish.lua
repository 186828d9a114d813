#!lua
-- Append items to the log, or replace those with the same ids, and hand out items while there is credit. A publish that is a repeat is told
-- so, whatever refuses it: the caller (`refused`), its publisher's `publish_rate` (empty: none), or the node, which is full.
-- ARGV: now revision frontend number retry dedupe dedupe_ms once_ms max_items node_full publish_rate | item key by body once hints refused
-- RETURNS: ok stale gone deleted | ok duplicate refused too-fast node-full item-id-invalid
local refusal = partition.load()
if refusal then return refusal end

enqueue.prepare(rows)
publish_rates.prepare()
local added = 0
local results = budget.each(rows, function(row)
  local repeated = enqueue.answer_repeat(row)
  if repeated then return repeated end
  if row.refused ~= '' then return {'refused'} end
  local wait_ms = publish_rates.use(row.by)
  if wait_ms then return {'too-fast', wait_ms} end
  if not call.partition_log_only and enqueue.find(row.item) then
    enqueue.replace(row)
    return row.item
  end
  if enqueue.is_future_id(row) then return {'item-id-invalid'} end
  if not enqueue.room() then return {'node-full'} end
  added = added + 1
  local item = enqueue.append(row)
  return row.parents and {'ok', item, 0, enqueue.describe_dependent(row.position, row.parents)} or item
end)
return respond.make(results, added)
