#!lua
-- Append items to the log, or replace those with the same ids, and hand out items while there is credit. With `if_known` only items that
-- are known here are published, in the partition that they had before the node grew; for the others the answer says whether such items
-- may still be here.
-- ARGV: now revision frontend sent number retry dedupe dedupe_ms once_ms max_items node_full if_known | item key by body once hints
-- RETURNS: ok stale gone deleted | ok duplicate node-full item-id-invalid item-not-found
local refusal = partition.load()
if refusal then return refusal end

enqueue.prepare(rows)
local added, tail = 0, call.partition_tail
local results = budget.each(rows, function(row)
  if row.hints ~= '' then scheduling.read_request(row) end
  -- The frontend of an item that waits for others goes on in this partition.
  if enqueue.is_duplicate(row) then return {'duplicate', row.item, dedupe.differs(row) and 1 or row.parents and 0, row.parents and arg.number} end
  if not call.partition_log_only and enqueue.find(row.item) then
    -- A new version could not wait: the item may be locked, or have waited already.
    if row.parents then return {'duplicate', row.item, 0, arg.number} end
    enqueue.replace(row)
    return row.item
  end
  if arg.if_known ~= '' then return {'item-not-found', former_partition.over(tail)} end
  if enqueue.is_future_id(row) then return {'item-id-invalid'} end
  if not enqueue.room() then return {'node-full'} end
  added = added + 1
  local item = enqueue.append(row)
  return row.parents and {'ok', item, 0, arg.number} or item
end)
if arg.if_known ~= '' then former_partition.stay(tail) end
return respond.make(results, added)
