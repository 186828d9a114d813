-- Integers up to 2^63-1 as texts (EX12): a number in Lua is exact up to 2^53.
local int64 = {MOST = '9223372036854775807'}

function int64.after(a, b)
  return #a > #b or (#a == #b and a > b)
end

-- Returns the next number; nil after the last one.
function int64.following(number)
  if number == int64.MOST then return nil end
  local nines = string.match(number, '9*$')
  local head, digit = string.match(string.sub('0' .. number, 1, -1 - #nines), '^(.*)(%d)$')
  return (string.gsub(head .. (digit + 1) .. string.rep('0', #nines), '^0+(%d)', '%1'))
end
