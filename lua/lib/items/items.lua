-- Finds items by id, and removes them from the queue for good.
local items = {}

-- Returns the positions of these ids, in their order, false where there is none. A position from an id that the service made may have no
-- item any more.
function items.positions_of(ids)
  local found = {}
  for first = 1, #ids, 1000 do
    local last = math.min(first + 999, #ids)
    local values = redis.call('HMGET', key.index, unpack(ids, first, last))
    for i = first, last do
      found[i] = values[i - first + 1] or positions.of_item_id(ids[i])
    end
  end
  return found
end

function items.name(position, entry)
  return entry.item ~= '' and entry.item or positions.item_id(position)
end

-- Returns the entry of an item that is not locked; nil when there is none, when it is on its way to another node, or, with `item`, when
-- that is not its name: an item with its publisher's id has no second name.
function items.waiting(position, item)
  if redis.call('HEXISTS', key.outbox_items, position) == 1 then return nil end
  local entry = log_entries.current(position)
  if call.partition_kept > 0 and not call.partition_options.log_only and retention.find_finished({position}, {''})[1] then return nil end
  -- An item with another priority is in `by_priority` while it exists.
  local rank = entry and entry.hints ~= '' and scheduling.of(entry).rank
  if rank and not scheduling.rank(position) then return nil end
  -- One that waits for others has a record, and then a version without that.
  if entry and entry.hints ~= '' and scheduling.of(entry).waits and not dependents.text(position) then return nil end
  -- An entry for another position is a version of that item, unless it became an item of its own.
  if entry and entry.at and entry.log_id == position and not redis.call('ZSCORE', key.ready, position)
    and not redis.call('ZSCORE', key.delayed, position) and redis.call('HEXISTS', key.group_of, position) == 0
    and not (rank or call.partition_before.selects and skipped_items.contains(position)) then
    return nil
  end
  if entry and item and items.name(position, entry) ~= item then return nil end
  return entry
end

local function forget(position, log_id, item)
  if log_id ~= position then write_buffer.add('HDEL', key.replaced, position) end
  if item ~= '' and not positions.is_made_id(item, position) then write_buffer.add('HDEL', key.index, item) end
end

-- Counts the entries of an item that were not worked on: all, or of one that is `done` its first version, which another has replaced.
local function count_removed(position, log_id, done)
  local entries = log_id == position and 1 or 2
  if not call.partition_options.log_only then partition.count_removed(done and entries - 1 or entries) end
end

-- Erases an item whose payload is at `log_id`; `item` is the publisher's id or empty. One that is `done` was acknowledged.
function items.erase(position, log_id, item, done)
  count_removed(position, log_id, done)
  log_entries.forget_new()
  write_buffer.add('XDEL', key.log, position)
  if log_id ~= position then write_buffer.add('XDEL', key.log, log_id) end
  forget(position, log_id, item)
end

-- Finishes an item and keeps its entries in the log.
function items.keep(position, log_id, item, bytes)
  count_removed(position, log_id, true)
  retention.keep(log_id, bytes)
  local first = log_id ~= position and log_entries.get(position)
  if first then retention.keep(position, #first.body) end
  forget(position, log_id, item)
end

-- Erases a waiting item and all its index entries.
function items.drop(position, entry)
  -- A log keeps its entries from the start, so removing one counts.
  if call.partition_options.log_only then retention.lose(position, #entry.body) end
  if call.partition_before.fair_at then fair_order.remove(position, entry) end
  items.erase(position, entry.log_id, entry.item, false)
  write_buffer.add('ZREM', key.ready, position)
  write_buffer.add('ZREM', key.delayed, position)
  if call.partition_before.selects then skipped_items.remove(position) end
  if call.partition_before.hinted then scheduling.remove(position) end
  write_buffer.add('HDEL', key.history, position)
  if call.partition_before.dependents then dependents.leave(position) end
end
