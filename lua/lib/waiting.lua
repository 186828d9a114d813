-- What waits, in order: what is more urgent than usual (`ranked`), `ready` (left FIFO order and may go out), the log from the
-- cursor on, and at its end what is less urgent.
-- NEEDS: ready delayed
--- @include partition writes ordering hints times taking aside
local waiting = {DUE = 200}

-- Moves what is due out of `delayed`, to where it may go out; bounded, the rest follows with the next script.
function waiting.promote()
  if partition.hinted then times.sweep() end
  local due, moved = redis.call('ZRANGEBYSCORE', key.delayed, '-inf', partition.now, 'LIMIT', 0, waiting.DUE), 0
  while moved < #due and times.bytes < times.BYTES do
    moved = moved + 1
    if not (partition.hinted and times.comes(due[moved])) then writes.add('ZADD', ordering.place(due[moved])) end
  end
  if moved > 0 then redis.call('ZREM', key.delayed, unpack(due, 1, moved)) end
  writes.flush()
end

-- Takes up to `count` items out of the waiting, as entries with their `position` and their `past`, but for those passed over.
function waiting.next(count)
  local taken = {}
  if partition.hinted then aside.ranked(count, taken, 0, hints.USUAL) end
  taking.from_ready(count - #taken, taken)
  taking.from_log(count - #taken, taken)
  if partition.hinted and partition.cursor == partition.tail then
    aside.ranked(count - #taken, taken, hints.USUAL, hints.LAST)
  end
  return taken
end

-- These too, and first; the caller gives each of them a lock.
function waiting.take(count)
  local taken = {}
  if partition.selects then aside.passed(count, taken) end
  for _, entry in ipairs(waiting.next(count - #taken)) do taken[#taken + 1] = entry end
  return taken
end

-- Whether anything may be there to go out, but for those passed over.
function waiting.any()
  return partition.cursor ~= partition.tail or redis.call('EXISTS', key.ready) == 1
    or partition.hinted and hints.any(0, hints.LAST)
end
