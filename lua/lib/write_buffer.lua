-- Collects the writes of an operation and makes one Redis call per command and key: a call from Lua costs more than a value.
-- CALL: of = {}, order = {}
-- `of` has the values by key, for the first command on that key; for other commands by command and key.
local write_buffer = {}

-- Adds one value, or with a `second` a pair that belongs together (field and value, score and member).
function write_buffer.add(command, name, first, second)
  local of, known = call.write_buffer_of, name
  local gathered = of[name]
  if gathered and gathered[1] ~= command then
    known = command .. name
    gathered = of[known]
  end
  if gathered then
    local count = #gathered
    gathered[count + 1] = first
    if second then gathered[count + 2] = second end
  else
    gathered = {command, name, first, second}
    of[known] = gathered
    call.write_buffer_order[#call.write_buffer_order + 1] = gathered
  end
end

-- Writes in the order in which each kind was first added. unpack() fails near 8,000 values: 4,000 at once, an even number so that pairs
-- stay together.
function write_buffer.flush()
  local order = call.write_buffer_order
  if #order == 0 then return end
  call.write_buffer_of, call.write_buffer_order = {}, {}
  for i = 1, #order do
    local gathered = order[i]
    for first = 3, #gathered, 4000 do
      redis.call(gathered[1], gathered[2], unpack(gathered, first, math.min(first + 3999, #gathered)))
    end
  end
end
