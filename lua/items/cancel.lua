#!lua flags=allow-oom
-- Cancel items for their publishers and for owners, whether they wait or are locked: a holder loses its lock and gets a notice. A later
-- version that waits for the lock to end goes too. The answer to a repeat is that of the first request, unless the id has a new item.
-- ARGV: now revision frontend number retry | sender owner item request
-- RETURNS: ok stale gone deleted | ok replayed item-not-found forbidden
local refusal = partition.load()
if refusal then return refusal end
replay_cache.rotate()

local results = budget.each(rows, function(row)
  -- One by one: a row may name the item of an earlier one, and cancels are few.
  write_buffer.flush()
  ack_rules.prepare({row})
  local entry = row.flight and log_entries.get(row.flight.log_id) or row.position and items.waiting(row.position, row.item)
  if not (entry or row.flight) then
    if replay_cache.find(row) then return {'replayed'} end
    return {'item-not-found'}
  end
  if row.owner ~= '1' and not jids.is_publisher(row.sender, entry) then return {'forbidden'} end
  if row.flight then cancelling.end_lock(row.flight) else cancelling.drop(row.position, row.item, entry) end
  replay_cache.give(row, '')
  return {'ok'}
end)
return respond.make(results, call.lock_end_freed)
