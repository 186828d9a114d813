-- Where an item stands that may go out and is not for the cursor to bring.
-- NEEDS: ready ranked
--- @include partition positions ranks
local ready = {}

-- What ZADD takes.
function ready.place(position)
  local rank = partition.hinted and ranks.of(position)
  if rank then return key.ranked, rank, positions.padded(position) end
  return key.ready, positions.place(position), position
end
