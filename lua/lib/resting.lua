-- What is `delayed`, and comes when its time has come.
-- NEEDS: delayed
--- @include partition writes positions entries hints ends
local resting = {DUE = 200}

-- Whether the cursor is yet to bring an item: all but those of another priority, and versions that are items of their own.
function resting.comes(position)
  if not (partition.hinted and positions.after(position, partition.cursor)) then return false end
  local first = entries.get(position)
  return first and first.at == '' and not hints.of(first).rank
end

-- Moves what is due out of `delayed`, to where it may go out; bounded, the rest follows with the next script.
function resting.promote()
  ends.sweep()
  -- Of what the cursor is yet to bring entries are read, with their payloads.
  local most = partition.hinted and resting.DUE / 10 or resting.DUE
  local due = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', partition.now, 'LIMIT', 0, most)
  for _, position in ipairs(due) do
    if not resting.comes(position) then writes.add('ZADD', hints.place(position)) end
  end
  if #due > 0 then redis.call('ZREM', key.delayed, unpack(due)) end
  writes.flush()
end
