-- Writes gathered during a script and made with one call per key: a call from Lua costs more than a value.
-- NEEDS:
local writes = {queue = {}}

function writes.add(command, name, ...)
  local slot = command .. name
  local gathered = writes.queue[slot]
  if not gathered then
    gathered = {command, name}
    writes.queue[slot] = gathered
    writes.queue[#writes.queue + 1] = slot
  end
  for i = 1, select('#', ...) do gathered[#gathered + 1] = (select(i, ...)) end
end

-- In the order in which each kind was first added. unpack() fails near 8,000 values: 4,000 at once, an even number
-- so that pairs stay together.
function writes.flush()
  for _, slot in ipairs(writes.queue) do
    local gathered = writes.queue[slot]
    for first = 3, #gathered, 4000 do
      redis.call(gathered[1], gathered[2], unpack(gathered, first, math.min(first + 3999, #gathered)))
    end
  end
  writes.queue = {}
end
