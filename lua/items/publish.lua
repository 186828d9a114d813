#!lua
-- Append items to the log, or replace those with the same ids, and hand out items while there is credit. A publish that is a repeat is told
-- so, whatever refuses it: the caller (`refused`), its publisher's `publish_rate` (empty: none), or the node, which is full.
-- PLAIN: meta log index ready delayed replaced successors outbox locks_to_release subscription_expiry inflight lock_deadlines locks_by_subscriber subscribers ready_subscribers idle_subscribers history dedupe outbox_items group_of
-- ARGV: now revision frontend number retry dedupe dedupe_ms once_ms max_items node_full publish_rate | item key by body once hints refused
-- RETURNS: ok stale gone deleted wide | ok(item [differs dependent{partition [position parents]}])
--   duplicate(item [differs dependent{partition [position parents]}]) refused too-fast(wait_ms) node-full item-id-invalid
local function is_usual()
  for _, row in ipairs(rows) do
    if row.hints ~= '' then return false end
  end
  return arg.publish_rate == '' and arg.node_full == 'reject'
end

local refusal = partition.load() or plain.check(is_usual())
if refusal then return refusal end

enqueue.prepare(rows)
publish_rates.prepare()
local added = 0
local results = budget.each(rows, function(row)
  local repeated = enqueue.answer_repeat(row)
  if repeated then
    dedupe.write_for_repeat(row)
    return repeated
  end
  if row.refused ~= '' then return {'refused'} end
  local wait_ms = publish_rates.use(row.by)
  if wait_ms then return {'too-fast', wait_ms} end
  if not call.partition_options.log_only and enqueue.find(row.item) then
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
