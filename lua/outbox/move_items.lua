#!lua
-- Move waiting items to other nodes, each named by position and id: an item is on its way (`outbox_items`) until it has arrived.
-- ARGV: now revision frontend number retry | position item to
-- RETURNS: ok stale gone deleted | ok item-not-found
local refusal = partition.load()
if refusal then return refusal end

local function leave(row, entry)
  local position, past = row.position, attempt_history.of(row.position)
  entry.item = items.name(position, entry)
  if positions.after(position, call.partition_cursor) then
    -- The cursor has not reached the item: append it again as an entry that the cursor passes over.
    position = log_entries.append(entry, row.position)
    items.drop(row.position, entry)
    group_order.remove(row.position)
  else
    if call.partition_before.fair_at then fair_order.remove(position, entry) end
    write_buffer.add('ZREM', key.ready, position)
    write_buffer.add('ZREM', key.delayed, position)
    if call.partition_before.selects then skipped_items.remove(position) end
  end
  write_buffer.add('HDEL', key.history, row.position)
  outcomes.note_end(row.position, row.item, 'dead', 'moved', '')
  outbox_items.start(position, entry, past.attempts - past.untried, '>' .. row.to, '')
  write_buffer.flush()
end

local results = budget.each(rows, function(row)
  local entry = not inflight.get_many({row.position})[1] and items.waiting(row.position, row.item)
  if entry then leave(row, entry) end
  return {entry and 'ok' or 'item-not-found'}
end)
return respond.make(results, 0)
