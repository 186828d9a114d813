-- The item that gives way to another where a node is full: of the lowest priority the oldest.
-- NEEDS:
-- LAZY: where a node is full
--- @include partition ranks ranked taking waiting
local oldest = {}

local function of_ranks(first, last, taken)
  for rank = first, partition.hinted and last or first + 1, -1 do ranked.take(1 - #taken, taken, rank, rank) end
end

-- Takes it; nil when nothing may go.
function oldest.take()
  local taken = {}
  of_ranks(ranks.LAST, ranks.USUAL + 1, taken)
  if partition.selects then waiting.again(1 - #taken, taken) end
  taking.from_ready(1 - #taken, taken)
  taking.from_log(1 - #taken, taken)
  of_ranks(ranks.USUAL - 1, 0, taken)
  return taken[1]
end
