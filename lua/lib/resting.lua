-- Whether what is next goes out, and where what is delayed comes from.
-- NEEDS: delayed ready
-- LAZY: where publishers ask for something
--- @include partition writes positions entries ordering hints ends ready
local resting = {bytes = 0}

-- Whether the cursor is yet to bring an item: all but those of another priority, and versions that are items of their own. Its
-- entry is read with its payload: `bytes` says how much that was in this script.
function resting.comes(position)
  if not positions.after(position, partition.cursor) then return false end
  local first = entries.get(position)
  resting.bytes = resting.bytes + (first and #first.body or 0)
  return first and first.at == '' and not hints.of(first).rank
end

-- Whether an item that is next goes out: not when its time is over or has yet to come, nor while another of its group is ahead.
function resting.goes(position, entry, group, past)
  -- What does not go counts as passed over, lest a script go through any number of them.
  ordering.skipped = ordering.skipped + 1
  -- It may be here before what is due has been moved.
  if hints.of(entry).after > 0 then redis.call('ZREM', key.delayed, position) end
  if ends.met(position, entry, past.attempts) or not ordering.admits(position, group) then return false end
  if hints.rests(entry) then
    redis.call('ZADD', key.delayed, hints.of(entry).after, position)
    return false
  end
  ordering.skipped = ordering.skipped - 1
  return true
end

-- An item that waits begins anew with the hints of what replaces it; a delay that a worker asked for stays.
function resting.anew(position, before, row)
  local was = hints.of(before).after
  hints.leave(position, before)
  writes.flush()
  hints.stay(position, row)
  if hints.rests(row) then
    redis.call('ZREM', key.ready, position)
    hints.enter(position, row)
  elseif was > partition.now and tonumber(redis.call('ZSCORE', key.delayed, position) or 0) == was then
    redis.call('ZREM', key.delayed, position)
    if not resting.comes(position) then redis.call('ZADD', ready.place(position)) end
  end
  writes.flush()
end
