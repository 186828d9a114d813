-- What waits, in order: what is more urgent than usual (`ranked`), `ready` (left FIFO order and may go out), the log from the
-- cursor on, and at its end what is less urgent.
-- NEEDS: ready
--- @include partition ranks taking
local waiting = {}

-- Takes up to `count` items out of the waiting, as entries with their `position` and their `past`, but for those passed over.
function waiting.next(count)
  local taken = {}
  taking.from_ranked(count, taken, 0, ranks.USUAL)
  taking.from_ready(count - #taken, taken)
  taking.from_log(count - #taken, taken)
  if partition.cursor == partition.tail then taking.from_ranked(count - #taken, taken, ranks.USUAL, ranks.LAST) end
  return taken
end

-- These too, and first; the caller gives each of them a lock.
function waiting.take(count)
  local taken = {}
  taking.from_passed(count, taken)
  for _, entry in ipairs(waiting.next(count - #taken)) do taken[#taken + 1] = entry end
  return taken
end

-- Takes the one that gives way to others: of the lowest priority the oldest.
function waiting.oldest()
  local taken = {}
  for rank = ranks.LAST, ranks.USUAL + 1, -1 do taking.from_ranked(1 - #taken, taken, rank, rank) end
  taking.from_passed(1 - #taken, taken)
  taking.from_ready(1 - #taken, taken)
  taking.from_log(1 - #taken, taken)
  for rank = ranks.USUAL - 1, 0, -1 do taking.from_ranked(1 - #taken, taken, rank, rank) end
  return taken[1]
end

-- Whether anything may be there to go out.
function waiting.any()
  return partition.cursor ~= partition.tail or redis.call('EXISTS', key.ready) == 1 or ranks.any(0, ranks.LAST)
end
