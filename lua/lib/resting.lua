-- What is `delayed`, and comes when its time has come.
-- NEEDS: delayed
--- @include partition writes positions entries hints ends
-- Bounded by bytes as well: what the cursor is yet to bring is read with its payload.
local resting = {LIMIT = 200, BYTES = 1048576, bytes = 0}

-- Whether the cursor is yet to bring an item: all but those of another priority, and versions that are items of their own.
function resting.comes(position)
  if not (partition.hinted and positions.after(position, partition.cursor)) then return false end
  local first = entries.get(position)
  resting.bytes = resting.bytes + (first and #first.body or 0)
  return first and first.at == '' and not hints.of(first).rank
end

-- Moves what is due out of `delayed`, to where it may go out; the rest follows with the next script.
function resting.promote()
  ends.sweep()
  local due, moved = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', partition.now, 'LIMIT', 0, resting.LIMIT), 0
  while moved < #due and resting.bytes < resting.BYTES do
    moved = moved + 1
    if not resting.comes(due[moved]) then writes.add('ZADD', hints.place(due[moved])) end
  end
  if moved > 0 then redis.call('ZREM', key.delayed, unpack(due, 1, moved)) end
  writes.flush()
end
